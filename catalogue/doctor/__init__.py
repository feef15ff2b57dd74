"""`catalogue doctor`: examine the installation and the source."""
