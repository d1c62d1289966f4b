#!/usr/bin/env python3
"""Reads files the way loaders do: readers.py HOW DIR, where HOW is fork, spawn, forkserver (two workers each), pipe (two cats) or threads.

Each reader opens DIR/<i>, keeps it open, and says so; all end when standard input ends. Prints the process ids: own, then the readers'.
"""
import multiprocessing, os, subprocess, sys, threading


def read(path, ready, stop):
    with open(path, "rb") as f:
        f.read()
        ready.put((os.getpid(), threading.get_native_id()))
        stop.wait()


def main(how, folder):
    paths = [os.path.join(folder, str(i)) for i in range(2)]
    if how == "pipe":
        # webdataset's gopen: a shell that becomes cat. Its output is not taken until the end, so it stays.
        readers = [subprocess.Popen(f"cat {p} -", shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for p in paths]
        for r in readers:
            assert r.stdout.read(1)
        # The shell becomes cat, or starts it.
        children = [open(f"/proc/{r.pid}/task/{r.pid}/children").read().split() or [r.pid] for r in readers]
        print(os.getpid(), *(c[0] for c in children), flush=True)
        sys.stdin.read()
        for r in readers:
            r.stdin.close()
        return
    if how == "threads":
        import queue

        ready, stop = queue.Queue(), threading.Event()
        readers = [threading.Thread(target=read, args=(p, ready, stop)) for p in paths]
    else:
        context = multiprocessing.get_context(how)
        ready, stop = context.Queue(), context.Event()
        readers = [context.Process(target=read, args=(p, ready, stop)) for p in paths]
    for r in readers:
        r.start()
    seen = [ready.get()[1 if how == "threads" else 0] for _ in readers]
    print(os.getpid(), *seen, flush=True)
    sys.stdin.read()
    stop.set()
    for r in readers:
        r.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
