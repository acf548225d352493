"""How jobs run that may have killed a node: in processes of their own, whose death tells who has done it."""
