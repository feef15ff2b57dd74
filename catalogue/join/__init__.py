"""Join many keys with the captures of crawls."""
