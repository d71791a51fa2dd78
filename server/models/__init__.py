"""`earshot models`: list, pull, convert, remove and check the weights in the models folder."""
