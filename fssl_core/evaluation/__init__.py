"""How good a representation is: features computed once, then kNN, a linear probe and client identifiability."""
