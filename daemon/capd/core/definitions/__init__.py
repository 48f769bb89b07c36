"""What servers say of themselves: cleaned, remembered, compared, and looked at for tricks."""
