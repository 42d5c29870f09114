import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;

/** What Java programs do with files: channels, mapped buffers, locks. */
class MountedFiles {
    static void require(boolean is, String what) {
        if (!is) {
            throw new AssertionError(what);
        }
    }

    public static void main(String[] args) throws Exception {
        Path path = Path.of("mapped");
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.CREATE,
                StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            var mapped = channel.map(FileChannel.MapMode.READ_WRITE, 0, 1 << 20);
            for (int at = 0; at < 1 << 20; at += 8) {
                mapped.putLong(at, at);
            }
            mapped.force();
            var read = ByteBuffer.allocate(8);
            channel.read(read, 4088);
            require(read.getLong(0) == 4088, "read has what was mapped");
            channel.write(ByteBuffer.wrap(new byte[] {1, 2, 3}), 4096);
            require(mapped.get(4098) == 3, "the mapping has what was written");
            try (FileLock lock = channel.lock(0, 100, false)) {
                require(lock.isValid(), "it is locked");
            }
            channel.force(true);
            try (FileChannel copy = FileChannel.open(Path.of("copy"), StandardOpenOption.CREATE,
                    StandardOpenOption.WRITE)) {
                require(channel.transferTo(0, 1 << 20, copy) == 1 << 20, "all was copied");
            }
        }
        require(Files.mismatch(path, Path.of("copy")) == -1, "the copy is the same");
        Files.move(Path.of("copy"), Path.of("moved"), StandardCopyOption.ATOMIC_MOVE);
        try (var file = new RandomAccessFile("moved", "rw")) {
            file.setLength(10);
            require(Files.size(Path.of("moved")) == 10, "it was cut off");
        }
        Files.setAttribute(path, "user:kind", ByteBuffer.wrap("text".getBytes()));
        require(Arrays.equals((byte[]) Files.getAttribute(path, "user:kind"), "text".getBytes()),
                "it has the attribute");
        System.out.println("done");
    }
}
