"""Figures: one style, charts of tidy tables with seaborn, pictures, and the diagrams of single notebooks.

Every function takes its data and an explicit subtitle, and returns a finished figure that pyplot has let go of.
``title`` is the figure's title; ``subtitle`` has profile, data and seeds, unless a function says something else.
"""
