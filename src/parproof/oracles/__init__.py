"""Single-process answers and closed forms; nothing here ever sees a process group."""
