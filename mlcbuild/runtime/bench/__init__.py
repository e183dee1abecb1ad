"""How fast a library is: tokens a second, and where the time goes."""
