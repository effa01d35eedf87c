"""What runs cost before they start: counted work, and what it takes on a machine."""
