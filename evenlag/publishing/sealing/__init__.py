"""Seals: rows of plans that only a holder of the approval key can write."""
