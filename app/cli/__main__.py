"""`python -m app.cli`: the same as the installed `arauto`, for where the scripts folder is not on the path."""

from app.cli import main

main()
