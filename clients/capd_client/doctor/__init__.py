"""`capd doctor`: checks everything that capd depends on, and says how to repair each problem.

A check is a function that takes the `CheckContext` and yields findings. It changes nothing, and no
check depends on another. If no daemon answers, everything that does not need one is still checked.
"""
