"""Sources of files: HTTP, S3 and folders, with response checks, rate limit, retries and cache."""
