"""The predictions in the papers' notebooks, a file for each paper; a file is read when one of them is made."""
