"""What makes a federation: clients as a matrix, who takes part, and what crosses the network."""
