"""Ways to take the footers of a crawl, each run as a process of its own, and a load to measure the server by.

``python -m benchmarks.clients.NAME URL MANIFEST FOLDER [RATE]`` takes those of the files that the manifest names,
writes what it makes of them into the folder, and says as JSON how long the parts of that took, imports not counted.
"""
