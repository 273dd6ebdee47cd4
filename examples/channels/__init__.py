"""RAMA's four uses of a channel, each a program that runs by itself and needs no broker."""
