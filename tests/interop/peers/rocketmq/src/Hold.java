import com.alibaba.fastjson2.JSON;
import java.nio.file.*;

/** Opens a store directory itself, no copy, prints "open", and closes it when standard input ends: "hold STORE_DIR PARAMS". */
public class Hold {
    public static void main(String[] a) {
        try {
            Peer.Store s = Peer.open(a[0], Peer.Params.from(JSON.parseObject(Files.readString(Paths.get(a[1])))), true);
            System.out.println("open");
            while (System.in.read() >= 0) { }
            s.shutdown();
        } catch (Throwable t) {
            System.err.println("error: " + t);
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }
}
