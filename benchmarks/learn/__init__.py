"""How much is learnt for each forward row: the network's method against MeZO, SubCGE and back-propagation."""
