"""How files are read and written: whole, through no foreign link, and somewhere else when a disk is full."""
