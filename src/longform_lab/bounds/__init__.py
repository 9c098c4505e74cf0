"""The paper's Theorems 1 and 2: what they promise, and what random and fitted projections do."""
