import java.util.ArrayList;
import java.util.List;

/** The line protocol of Admin and Actor: words separated by tabs in, one JSON object a line out. */
final class Lines {
    private static final int LOOK_MS = 20;

    private Lines() { }

    /**
     * Ends a wait in each shutdown of a client that the calling thread begins from now on.
     *
     * It is for a thread that polls for events of connections for 3 s at a time, and is not interrupted.
     */
    static void hastenShutdowns() {
        Thread caller = Thread.currentThread();
        Thread helper = new Thread(() -> {
            while (true) {
                if (waitsIn(caller, "org.apache.rocketmq.common.ServiceThread.shutdown")) {
                    endPolls();
                }
                try {
                    Thread.sleep(LOOK_MS);
                } catch (InterruptedException ended) {
                    return;
                }
            }
        }, "hasten-shutdowns");
        helper.setDaemon(true);
        helper.start();
    }

    private static void endPolls() {
        Thread[] threads = new Thread[Thread.activeCount() + 64];
        int count = Thread.enumerate(threads);
        for (int i = 0; i < count; i++) {
            if (threads[i].getName().equals("NettyEventExecutor")
                && waitsIn(threads[i], "java.util.concurrent.LinkedBlockingQueue.poll")) {
                threads[i].interrupt();
            }
        }
    }

    /** Whether a thread that waits for a time is in a method. */
    private static boolean waitsIn(Thread thread, String method) {
        if (thread.getState() != Thread.State.TIMED_WAITING) {
            return false;
        }
        for (StackTraceElement each : thread.getStackTrace()) {
            if (method.equals(each.getClassName() + "." + each.getMethodName())) {
                return true;
            }
        }
        return false;
    }

    /** The words of one line; \t, \n and \\ inside a word are written with a backslash. */
    static List<String> words(String line) {
        List<String> words = new ArrayList<>();
        StringBuilder word = new StringBuilder();
        for (int i = 0; i < line.length(); i++) {
            char c = line.charAt(i);
            if (c == '\t') {
                words.add(word.toString());
                word.setLength(0);
            } else if (c == '\\' && i + 1 < line.length()) {
                char next = line.charAt(++i);
                word.append(next == 't' ? '\t' : next == 'n' ? '\n' : next);
            } else {
                word.append(c);
            }
        }
        words.add(word.toString());
        return words;
    }

    /** A JSON string. */
    static String quote(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder out = new StringBuilder(text.length() + 2).append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
