"""The folder that a campaign or study is measured into."""
