"""The URL index of the crawl of 2012."""
