"""Global cost functions of `.wcsp` and `.cfn` files as factors."""
