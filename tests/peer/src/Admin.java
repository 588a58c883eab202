import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Many mqadmin commands in one JVM.
 *
 *   Admin NAMESRV
 *
 * Each line of standard input is one command (words separated by tabs, see Lines). Each answer is one JSON line:
 * {"out": what it printed, "err": the same on standard error, "exit": the status it wanted to exit with or null, "ms": how long}.
 */
public final class Admin {
    /** Thrown instead of leaving the JVM. */
    private static final class Exit extends SecurityException {
        private static final long serialVersionUID = 1L;
        private final int status;

        Exit(int status) {
            super("exit " + status);
            this.status = status;
        }
    }

    private static boolean leaving;

    @SuppressWarnings("removal")
    private static void holdExits() {
        System.setSecurityManager(new SecurityManager() {
            @Override public void checkExit(int status) {
                if (!leaving) {
                    throw new Exit(status);
                }
            }

            @Override public void checkPermission(Permission permission) { }

            @Override public void checkPermission(Permission permission, Object context) { }
        });
    }

    public static void main(String[] args) throws Exception {
        holdExits();
        Lines.hastenShutdowns();
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = new ArrayList<>(Lines.words(line));
            words.add("-n");
            words.add(args[0]);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, "UTF-8"));
            System.setErr(new PrintStream(err, true, "UTF-8"));
            String exit = "null";
            long start = System.nanoTime();
            try {
                MQAdminStartup.main0(words.toArray(new String[0]), null);
            } catch (Exit wanted) {
                exit = Integer.toString(wanted.status);
            } catch (Throwable failure) {
                failure.printStackTrace();
            }
            System.setOut(answers);
            System.setErr(errors);
            answers.println("{\"out\":" + Lines.quote(out.toString("UTF-8")) + ",\"err\":" + Lines.quote(err.toString("UTF-8"))
                + ",\"exit\":" + exit + ",\"ms\":" + (System.nanoTime() - start) / 1_000_000 + "}");
            answers.flush();
        }
        leaving = true;
        System.exit(0);
    }
}
