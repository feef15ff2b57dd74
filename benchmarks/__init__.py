"""What proves the requests, the bytes and the speed; see ``README.md`` beside this file."""
