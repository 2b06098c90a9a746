"""What runs inside a Lightning Trainer: the plugin, the strategies, the LightningModule, and recipe building."""
