"""Templates from the side of those who write them: kept in versions, chosen, looked at before they are sent."""
