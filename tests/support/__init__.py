"""What tests share: naive twins, random problems, real instances, files of other programs."""
