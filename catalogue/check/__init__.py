"""Check what is stored, the receipts of answers, and this installation with its source."""
