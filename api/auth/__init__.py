"""Who asks (identity), what they may do (roles bound to subtrees), and what each route needs (decisions)."""
