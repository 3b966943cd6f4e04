"""The commands that compare: releases, recorded campaigns, timelines."""
