"""Write records to files, folders and remote places; outputs can be resumed."""
