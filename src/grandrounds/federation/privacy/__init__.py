"""Differential privacy: noise, the budget that it is paid from, and the ledger of what each site spent."""
