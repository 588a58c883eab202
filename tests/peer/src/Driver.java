import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * Runs the loads that standard input names, one a line, in one virtual machine: what it has compiled
 * for one side of a comparison it has compiled for the other.
 *
 * A line is the class (Load or FeatureLoad) and its words, separated by tabs; the answer is the load's
 * line, or {"error":...}.
 */
public final class Driver {
    private Driver() { }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = Lines.words(line);
            String[] rest = words.subList(1, words.size()).toArray(new String[0]);
            try {
                if (words.get(0).equals("FeatureLoad")) {
                    FeatureLoad.run(rest);
                } else {
                    Load.run(rest);
                }
            } catch (Throwable error) { // out of memory or threads, too: nobody else would tell
                System.out.println("{\"error\":" + Lines.quote(error.toString()) + "}");
            }
            System.out.flush();
        }
        System.exit(0);
    }
}
