// What Go programs do with files: they call the kernel without the C library.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	// Files of many goroutines, each whole when it has its name.
	var all sync.WaitGroup
	for n := 0; n < 16; n++ {
		all.Add(1)
		go func(n int) {
			defer all.Done()
			file, err := os.CreateTemp(".", "temporary")
			must(err)
			_, err = file.Write(bytes.Repeat([]byte{byte(n)}, 10000*n))
			must(err)
			must(file.Sync())
			must(file.Close())
			must(os.Rename(file.Name(), fmt.Sprint("file", n)))
		}(n)
	}
	all.Wait()
	for n := 0; n < 16; n++ {
		content, err := os.ReadFile(fmt.Sprint("file", n))
		must(err)
		if !bytes.Equal(content, bytes.Repeat([]byte{byte(n)}, 10000*n)) {
			panic("a file has other content")
		}
	}
	// A mapped file is what is read.
	file, err := os.OpenFile("mapped", os.O_RDWR|os.O_CREATE, 0o644)
	must(err)
	must(file.Truncate(100000))
	mapped, err := syscall.Mmap(int(file.Fd()), 0, 100000, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	must(err)
	copy(mapped[50000:], "through the mapping")
	read := make([]byte, 19)
	_, err = file.ReadAt(read, 50000)
	must(err)
	if string(read) != "through the mapping" {
		panic("read has something else than the mapping")
	}
	must(syscall.Munmap(mapped))
	// io.Copy uses copy_file_range.
	target, err := os.Create("copied")
	must(err)
	_, err = file.Seek(0, io.SeekStart)
	must(err)
	copied, err := io.Copy(target, file)
	must(err)
	if copied != 100000 {
		panic("not all was copied")
	}
	entries, err := os.ReadDir(".")
	must(err)
	fmt.Println(len(entries))
	must(os.RemoveAll("file15"))
}
