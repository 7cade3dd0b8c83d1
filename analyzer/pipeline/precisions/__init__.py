"""Analysis: the same weights in other forms: what each would run as, take and cost."""
