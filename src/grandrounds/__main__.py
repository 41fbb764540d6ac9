"""`python -m grandrounds`"""

from grandrounds.cli import main

if __name__ == "__main__":
    main()
