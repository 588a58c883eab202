import java.util.ArrayList;
import java.util.List;

/** The line protocol of Admin and Actor: words separated by tabs in, one JSON object a line out. */
final class Lines {
    private Lines() { }

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
