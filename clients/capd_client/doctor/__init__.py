"""`capd doctor`: looks at everything that capd rests on, and says what to do about each trouble.

A check is a function from what was found out to findings. It changes nothing, and none depends on
another one: with the daemon down, all that can be seen without it is still looked at.
"""
