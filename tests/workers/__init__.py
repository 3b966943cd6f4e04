"""Runners that go wrong in one way each, for the tests of harness.workers.worker and of the campaign: `tests.workers.hang` and so on."""
