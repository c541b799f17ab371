"""What an app or an operator asks for: functions of `Parts`."""
