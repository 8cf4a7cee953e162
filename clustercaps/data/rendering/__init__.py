"""A set of rendered toys in the format of smallNORB: same views, same files, other toys."""
