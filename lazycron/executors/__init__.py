"""How a claim becomes an outcome."""
