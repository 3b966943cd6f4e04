"""Runners that go wrong in one way each, for the tests of harness.worker and of the campaign: `tests.workers.hang` and so on."""
