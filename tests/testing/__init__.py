"""What the package ships for tests of users, tested."""
